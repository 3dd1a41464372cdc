#!/usr/bin/env bash
# In a pipeline: signs azd in by GitHub's token and makes the environment anew from variables, since nothing of azd's is in the
# repository. AZD_VALUES has a NAME=value a line, as `azd env set` takes them (docs/deploy.md); no secrets.
set -euo pipefail

azd auth login --client-id "$AZURE_CLIENT_ID" --tenant-id "$AZURE_TENANT_ID" --federated-credential-provider github
azd env new "$AZD_ENVIRONMENT" --subscription "$AZURE_SUBSCRIPTION_ID" --no-prompt
while IFS='=' read -r name value; do
    name=${name//[[:space:]]/}
    if [[ -z $name || $name == \#* ]]; then
        continue
    fi
    azd env set "$name" "${value%$'\r'}"
done <<<"$AZD_VALUES"
