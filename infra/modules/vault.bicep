// The vault of the secrets: secrets-key, twilio-auth-token and, where switched on, twilio-auth-token-secondary,
// twilio-webhook-shared-key and metrics-token. Made empty: a template would replace secrets-key at every deployment, and with it go all
// sealed webhook secrets. A hook makes it once, and only if it is not there.

@description('Name of the vault, at most 24 characters.')
@minLength(3)
@maxLength(24)
param name string

@description('Region.')
param location string

@description('Tags of every resource.')
param tags object

@description('Take back a soft-deleted vault of this name: purge protection keeps the name taken.')
param recover bool

@description('Workspace of the audit log.')
param workspaceId string

resource vault 'Microsoft.KeyVault/vaults@2023-07-01' = {
  // checkov:skip=CKV_AZURE_109:the platform and the deployer come from addresses that nobody can list; roles are checked and every read is logged
  // checkov:skip=CKV_AZURE_189:as before
  name: name
  location: location
  tags: tags
  properties: {
    tenantId: tenant().tenantId
    sku: {
      family: 'A'
      name: 'standard'
    }
    createMode: recover ? 'recover' : 'default'
    enableRbacAuthorization: true
    enableSoftDelete: true
    softDeleteRetentionInDays: 90
    enablePurgeProtection: true
    publicNetworkAccess: 'Enabled'
    networkAcls: {
      bypass: 'AzureServices'
      defaultAction: 'Allow'
    }
  }
}

resource audit 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'audit'
  scope: vault
  properties: {
    workspaceId: workspaceId
    logs: [
      {
        categoryGroup: 'audit'
        enabled: true
      }
    ]
  }
}

@description('Name of the vault.')
output name string = vault.name

@description('Address of the vault, with a slash at the end.')
output uri string = vault.properties.vaultUri
