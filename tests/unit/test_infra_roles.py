"""The roles that infra/ assigns are those of the table in docs/deploy.md, and lie in one file."""

from __future__ import annotations

import re

from tests.fakes.bicep import FILES, INFRA, read

# Azure's own roles: the same ids everywhere (learn.microsoft.com, "Azure built-in roles").
BUILT_IN = {
    "Storage Blob Data Owner": "b7e6dc6d-f1e8-4753-8033-0f276bb0955b",
    "Storage Queue Data Contributor": "974c5e8b-45b9-4653-ba55-5f855dd0fb88",
    "Storage Queue Data Reader": "19e7f393-937e-4f77-808e-94535e297925",
    "Key Vault Secrets User": "4633458b-17de-408a-b874-0445c86b69e6",
    "Key Vault Secrets Officer": "b86a8fe4-44ce-4948-aee5-eccb2c155cd7",
    "Cognitive Services OpenAI User": "5e0bd9bd-7b93-4f28-af87-19fc36ad61bd",
    "Monitoring Metrics Publisher": "3913510d-42f4-4e42-8a64-420c390055eb",
}
SCOPES = {
    "storage": ("storage account", "Microsoft.Storage/storageAccounts"),
    "vault": ("key vault", "Microsoft.KeyVault/vaults"),
    "model": ("model account", "Microsoft.CognitiveServices/accounts"),
    "insights": ("application insights", "Microsoft.Insights/components"),
}
WHO = {"appPrincipalId": "application", "deployerPrincipalId": "deployer"}
FILE = read(INFRA / "modules" / "roles.bicep")
ASSIGNMENT = "Microsoft.Authorization/roleAssignments"


def assigned() -> list[tuple[str, str, str]]:
    found = []
    for one in FILE.of("resource").values():
        if not one.type.startswith(ASSIGNMENT):
            continue
        role = re.fullmatch(
            r"subscriptionResourceId\('Microsoft.Authorization/roleDefinitions', (\w+)\)",
            one.at("properties", "roleDefinitionId"),
        )
        who, scope = one.at("properties", "principalId"), one.at("scope")
        assert role, one.name
        # The same at every deployment, and another for each.
        assert one.at("name") == f"guid({scope}.id, {who}, {role[1]})"
        assert FILE.of("resource")[scope].is_existing
        assert FILE.of("resource")[scope].type.startswith(SCOPES[scope][1] + "@")
        found.append((WHO[who], str(FILE.of("var")[role[1]].value), SCOPES[scope][0]))
    return found


def test_exactly_the_table_is_assigned() -> None:
    page = (INFRA.parent / "docs" / "deploy.md").read_text("utf-8")
    rows = re.findall(r"^\| (application|deployer) \| ([\w ]+) \| ([0-9a-f-]{36}) \| ([\w ]+) \|", page, re.MULTILINE)
    assert len(rows) == 8
    for _, role, role_id, _ in rows:
        assert BUILT_IN[role] == role_id
    assert sorted(assigned()) == sorted((who, role_id, scope) for who, _, role_id, scope in rows)


def test_no_other_file_assigns_a_role() -> None:
    for path in FILES:
        assert path == FILE.path or ASSIGNMENT not in read(path).source
    assert not re.search(r"roleDefinitions@|accessPolicies", "".join(read(path).source for path in FILES))
