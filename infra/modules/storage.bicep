// Storage of the Functions host, of the deployed package and of the wake queue. No keys: identities only.

@description('Name of the account: lower-case letters and digits, at most 24.')
@minLength(3)
@maxLength(24)
param name string

@description('Region.')
param location string

@description('Tags of every resource.')
param tags object

var container = 'deployments'

resource account 'Microsoft.Storage/storageAccounts@2024-01-01' = {
  // checkov:skip=CKV_AZURE_35:Flex Consumption without a network comes from addresses that nobody can list; keys are off and identities are checked
  // checkov:skip=CKV_AZURE_59:as before; no container is public
  // checkov:skip=CKV_AZURE_206:what lies here can be lost: hints that work is due, and a package that is deployed again
  name: name
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: {
    name: 'Standard_LRS'
  }
  properties: {
    allowSharedKeyAccess: false
    defaultToOAuthAuthentication: true
    allowBlobPublicAccess: false
    allowCrossTenantReplication: false
    supportsHttpsTrafficOnly: true
    minimumTlsVersion: 'TLS1_2'
    publicNetworkAccess: 'Enabled'
    networkAcls: {
      bypass: 'AzureServices'
      defaultAction: 'Allow'
    }
  }
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2024-01-01' = {
  parent: account
  name: 'default'
}

resource deployments 'Microsoft.Storage/storageAccounts/blobServices/containers@2024-01-01' = {
  parent: blobs
  name: container
  properties: {
    publicAccess: 'None'
  }
}

resource queues 'Microsoft.Storage/storageAccounts/queueServices@2024-01-01' = {
  parent: account
  name: 'default'
}

// Its name is QUEUE_NAME of shared/clients/wake.py.
resource wake 'Microsoft.Storage/storageAccounts/queueServices/queues@2024-01-01' = {
  parent: queues
  name: 'wake'
}

@description('Name of the account.')
output name string = account.name

@description('Container of the deployed package.')
output deploymentContainer string = deployments.name
