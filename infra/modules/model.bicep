// Azure OpenAI with the two deployments. Keys are off: the application's identity signs in.

@description('Name of the account, also its subdomain.')
@minLength(2)
@maxLength(63)
param name string

@description('Region.')
param location string

@description('Tags of every resource.')
param tags object

@description('Take back a soft-deleted account of this name.')
param recover bool

@description('Model that writes answers.')
param chatModel string

@description('Its version.')
param chatModelVersion string

@description('Where it may run.')
param chatSku string

@description('Its capacity, in thousands of tokens a minute.')
param chatCapacity int

@description('Model that embeds texts.')
param embeddingModel string

@description('Its version.')
param embeddingModelVersion string

@description('Where it may run.')
param embeddingSku string

@description('Its capacity, in thousands of tokens a minute.')
param embeddingCapacity int

resource account 'Microsoft.CognitiveServices/accounts@2025-06-01' = {
  // checkov:skip=CKV_AZURE_134:Flex Consumption without a network comes from addresses that nobody can list; keys are off and identities are checked
  // checkov:skip=CKV_AZURE_238:the account itself reads nothing and so needs no identity
  name: name
  location: location
  tags: tags
  kind: 'OpenAI'
  sku: {
    name: 'S0'
  }
  properties: {
    customSubDomainName: name
    disableLocalAuth: true
    publicNetworkAccess: 'Enabled'
    networkAcls: {
      defaultAction: 'Allow'
    }
    restore: recover ? true : null
  }
}

resource chat 'Microsoft.CognitiveServices/accounts/deployments@2025-06-01' = {
  parent: account
  name: 'chat'
  sku: {
    name: chatSku
    capacity: chatCapacity
  }
  properties: {
    model: {
      format: 'OpenAI'
      name: chatModel
      version: chatModelVersion
    }
    versionUpgradeOption: 'OnceCurrentVersionExpired'
  }
}

// One after the other: the account takes one change at a time. Never upgraded by itself, and named after its model: each chunk
// records the deployment that embedded it, and vectors of two models must not be mixed.
resource embedding 'Microsoft.CognitiveServices/accounts/deployments@2025-06-01' = {
  parent: account
  name: embeddingModel
  sku: {
    name: embeddingSku
    capacity: embeddingCapacity
  }
  properties: {
    model: {
      format: 'OpenAI'
      name: embeddingModel
      version: embeddingModelVersion
    }
    versionUpgradeOption: 'NoAutoUpgrade'
  }
  dependsOn: [
    chat
  ]
}

@description('Name of the account.')
output name string = account.name

@description('Address of the account.')
output endpoint string = account.properties.endpoint

@description('Deployment that writes answers.')
output chatDeployment string = chat.name

@description('Deployment that embeds texts.')
output embeddingDeployment string = embedding.name
