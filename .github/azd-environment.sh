#!/usr/bin/env bash
# In a pipeline: signs azd in by GitHub's token and makes the environment anew from variables, since nothing of azd's is in the
# repository. AZD_VALUES has a NAME=value a line, as `azd env set` takes them (docs/deploy.md); no secrets.
set -euo pipefail

azd auth login --client-id "$AZURE_CLIENT_ID" --tenant-id "$AZURE_TENANT_ID" --federated-credential-provider github
azd env new "$AZD_ENVIRONMENT" --subscription "$AZURE_SUBSCRIPTION_ID" --no-prompt
while read -r line; do
    line=${line%$'\r'}
    if [[ $line != *=* || $line == \#* ]]; then
        continue
    fi
    name=${line%%=*}
    azd env set "${name//[[:space:]]/}" "${line#*=}" </dev/null
done <<<"$AZD_VALUES"
