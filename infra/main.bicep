// Antwoord on Azure: one resource group with all that the application needs. docs/deploy.md says what is made and why.
// No secret passes through here: the vault is made empty, and the hooks of azure.yaml fill it.
targetScope = 'subscription'

@description('Name of the azd environment; the resource group is called after it.')
@minLength(1)
@maxLength(64)
param environmentName string

@description('Region of everything. It must offer Flex Consumption with Python 3.13 and both models.')
@minLength(1)
param location string

@description('Object id of whoever deploys: administrator of the database, and may fill the vault.')
param principalId string

// Its default is only there so that azd does not ask for it: azd asks before the hook that finds it out.
@description('Name of whoever deploys as Postgres knows it: the user principal name, or the display name of a service principal.')
param principalName string = ''

@description('What principalId is; azd says it.')
@allowed([
  'User'
  'ServicePrincipal'
])
param principalType string = 'User'

@description('Address that alerts are sent to.')
param alertEmail string

@description('SID of the Twilio account, AC….')
param twilioAccountSid string

@description('Number that answers, whatsapp:+….')
param twilioWhatsappFrom string

@description('SID of the approved template that carries an answer after 24 hours of WhatsApp; empty for none.')
param twilioTemplateSid string = ''

@description('While the Twilio token is rotated: the vault holds twilio-auth-token-secondary.')
param twilioRotating bool = false

@description('Whether the vault holds twilio-webhook-shared-key, the key of HMAC-SHA256 signatures.')
param twilioSharedKeyUsed bool = false

@description('Whether the vault holds metrics-token; without it there is no /api/metrics.')
param metricsOn bool = false

@description('Client id of the app registration that signs administrators in; empty leaves the console off.')
param consoleClientId string = ''

@description('App role that an administrator of the console must have; not Antwoord.Viewer or Antwoord.Operator, which have less.')
param consoleRole string = 'Antwoord.Admin'

@description('Own address, https://host without a slash; empty for the address that Azure gives.')
param publicBaseUrl string = ''

@description('Hosts inside the organisation that deliveries and imports may reach, with commas between.')
param outboundAllowHosts string = ''

@description('What numbers that are not in people get.')
@allowed([
  'decline'
  'answer'
])
param unknownSenders string = 'decline'

@description('Language when nothing tells it.')
@allowed([
  'nl'
  'en'
])
param defaultLanguage string = 'nl'

@description('One switch: the database gets no public address, and the functions reach it through a network of their own.')
param privateNetwork bool = false

@description('Public IPv4 address of whoever deploys, let in to migrate the database; empty for none. Without meaning in a private network.')
param deployerAddress string = ''

@description('Take back the vault of the same name that azd down has left soft-deleted.')
param recoverVault bool = false

@description('Take back the model account of the same name that azd down has left soft-deleted.')
param recoverModel bool = false

@description('Size of the database server. The connections that it gives must cover the budget in modules/database.bicep.')
param databaseSku string = 'Standard_B1ms'

@description('Tier of databaseSku.')
@allowed([
  'Burstable'
  'GeneralPurpose'
  'MemoryOptimized'
])
param databaseTier string = 'Burstable'

@description('max_connections of databaseSku: 50 for Standard_B1ms, 429 for B2s, 859 for sizes with 8 GiB; 15 of them are not for users.')
param databaseMaxConnections int = 50

@description('Storage of the database, in GiB. It grows by itself and never shrinks.')
@minValue(32)
param databaseStorageGb int = 32

@description('A standby that takes over: not with Burstable sizes.')
@allowed([
  'Disabled'
  'SameZone'
  'ZoneRedundant'
])
param databaseHighAvailability string = 'Disabled'

@description('How many days back the database can be restored.')
@minValue(7)
@maxValue(35)
param databaseBackupDays int = 14

@description('Whether backups are also kept in the paired region. Can only be chosen when the server is made.')
@allowed([
  'Disabled'
  'Enabled'
])
param databaseGeoBackup string = 'Disabled'

@description('Whether the application checks the certificate of the database: verify-full does; require is the way back, and checks nothing.')
@allowed([
  'verify-full'
  'require'
])
param databaseTls string = 'verify-full'

@description('Memory of one instance, in MB.')
@allowed([
  512
  2048
  4096
])
param instanceMemoryMb int = 2048

@description('Most instances of EACH of the three function groups (http, poll, wake).')
@minValue(1)
@maxValue(1000)
param maximumInstances int = 2

@description('Requests that one instance takes at once; as maxConcurrentRequests of host.json.')
@minValue(1)
@maxValue(1000)
param httpConcurrency int = 20

@description('Instances for webhooks that are always ready, against cold starts; paid for all day, and on top of maximumInstances.')
@minValue(0)
param httpAlwaysReady int = 0

@description('Jobs that run at once in one process.')
param jobConcurrency int = 8

@description('Connections of one process; it opens one more to renew leases.')
param databasePoolMax int = 4

@description('Six fields of the timer; empty for every five seconds. Every run of it is paid for: docs/cost.md.')
param pollSchedule string = ''

@description('Model that writes answers.')
param chatModel string = 'gpt-5.6-luna'

@description('Version of chatModel.')
param chatModelVersion string = '2026-07-09'

@description('Where chatModel may run: DataZoneStandard stays in the European (or American) data zone, Standard in the region.')
param chatSku string = 'DataZoneStandard'

@description('Capacity of chatModel, in thousands of tokens a minute.')
@minValue(1)
param chatCapacity int = 50

@description('How long chatModel may reason before it answers: none is fastest. A model that takes no such parameter is asked without it.')
@allowed([
  'none'
  'minimal'
  'low'
  'medium'
  'high'
  'xhigh'
])
param chatReasoningEffort string = 'none'

@description('Tokens that an answer may take at most, reasoning among them. Azure reserves so many of chatCapacity for each call.')
@minValue(16)
param chatAnswerLimit int = 1000

@description('Model that embeds texts. It must give 1,536 dimensions.')
param embeddingModel string = 'text-embedding-3-small'

@description('Version of embeddingModel.')
param embeddingModelVersion string = '1'

@description('Where embeddingModel may run, as chatSku.')
param embeddingSku string = 'DataZoneStandard'

@description('Capacity of embeddingModel, in thousands of tokens a minute.')
@minValue(1)
param embeddingCapacity int = 50

@description('How many days logs are kept.')
@minValue(30)
@maxValue(730)
param logRetentionDays int = 30

var suffix = uniqueString(subscription().id, environmentName, location)
var tags = {
  'azd-env-name': environmentName
}

resource group 'Microsoft.Resources/resourceGroups@2024-03-01' = {
  name: 'rg-${environmentName}'
  location: location
  tags: tags
}

module identity 'modules/identity.bicep' = {
  name: 'identity'
  scope: group
  params: {
    name: 'id-antwoord-${suffix}'
    location: location
    tags: tags
  }
}

module observation 'modules/observation.bicep' = {
  name: 'observation'
  scope: group
  params: {
    suffix: suffix
    location: location
    tags: tags
    alertEmail: alertEmail
    logRetentionDays: logRetentionDays
  }
}

module vault 'modules/vault.bicep' = {
  name: 'vault'
  scope: group
  params: {
    name: 'kv-antw-${suffix}'
    location: location
    tags: tags
    recover: recoverVault
    workspaceId: observation.outputs.workspaceId
  }
}

module storage 'modules/storage.bicep' = {
  name: 'storage'
  scope: group
  params: {
    name: 'stantw${suffix}'
    location: location
    tags: tags
  }
}

module network 'modules/network.bicep' = {
  name: 'network'
  scope: group
  params: {
    wanted: privateNetwork
    name: 'vnet-antwoord-${suffix}'
    location: location
    tags: tags
  }
}

module database 'modules/database.bicep' = {
  name: 'database'
  scope: group
  params: {
    name: 'psql-antwoord-${suffix}'
    location: location
    tags: tags
    sku: databaseSku
    tier: databaseTier
    storageGb: databaseStorageGb
    highAvailability: databaseHighAvailability
    backupDays: databaseBackupDays
    geoBackup: databaseGeoBackup
    administratorObjectId: principalId
    administratorName: principalName
    administratorType: principalType
    privateNetwork: privateNetwork
    subnetId: network.outputs.databaseSubnetId
    dnsZoneId: network.outputs.databaseDnsZoneId
    deployerAddress: deployerAddress
  }
}

module model 'modules/model.bicep' = {
  name: 'model'
  scope: group
  params: {
    name: 'oai-antwoord-${suffix}'
    location: location
    tags: tags
    recover: recoverModel
    chatModel: chatModel
    chatModelVersion: chatModelVersion
    chatSku: chatSku
    chatCapacity: chatCapacity
    embeddingModel: embeddingModel
    embeddingModelVersion: embeddingModelVersion
    embeddingSku: embeddingSku
    embeddingCapacity: embeddingCapacity
  }
}

module roles 'modules/roles.bicep' = {
  name: 'roles'
  scope: group
  params: {
    appPrincipalId: identity.outputs.principalId
    deployerPrincipalId: principalId
    deployerPrincipalType: principalType
    storageName: storage.outputs.name
    vaultName: vault.outputs.name
    modelName: model.outputs.name
    insightsName: observation.outputs.insightsName
  }
}

module functions 'modules/functions.bicep' = {
  name: 'functions'
  scope: group
  params: {
    suffix: suffix
    location: location
    tags: tags
    identityName: identity.outputs.name
    storageName: storage.outputs.name
    deploymentContainer: storage.outputs.deploymentContainer
    insightsName: observation.outputs.insightsName
    vaultUri: vault.outputs.uri
    databaseHost: database.outputs.host
    databaseName: database.outputs.databaseName
    databaseTls: databaseTls
    modelEndpoint: model.outputs.endpoint
    chatDeployment: model.outputs.chatDeployment
    embeddingDeployment: model.outputs.embeddingDeployment
    chatReasoningEffort: chatReasoningEffort
    chatAnswerLimit: chatAnswerLimit
    subnetId: network.outputs.functionSubnetId
    instanceMemoryMb: instanceMemoryMb
    maximumInstances: maximumInstances
    httpConcurrency: httpConcurrency
    httpAlwaysReady: httpAlwaysReady
    jobConcurrency: jobConcurrency
    databasePoolMax: databasePoolMax
    pollSchedule: pollSchedule
    twilioAccountSid: twilioAccountSid
    twilioWhatsappFrom: twilioWhatsappFrom
    twilioTemplateSid: twilioTemplateSid
    twilioRotating: twilioRotating
    twilioSharedKeyUsed: twilioSharedKeyUsed
    metricsOn: metricsOn
    consoleClientId: consoleClientId
    consoleRole: consoleRole
    publicBaseUrl: publicBaseUrl
    outboundAllowHosts: outboundAllowHosts
    unknownSenders: unknownSenders
    defaultLanguage: defaultLanguage
  }
  dependsOn: [
    roles
  ]
}

module alerts 'modules/alerts.bicep' = {
  name: 'alerts'
  scope: group
  params: {
    suffix: suffix
    location: location
    tags: tags
    workspaceId: observation.outputs.workspaceId
    insightsName: observation.outputs.insightsName
    actionGroupId: observation.outputs.actionGroupId
    databaseId: database.outputs.id
    databaseMaxConnections: databaseMaxConnections
    healthUrl: '${functions.outputs.baseUrl}/api/health'
  }
}

module workbook 'modules/workbook.bicep' = {
  name: 'workbook'
  scope: group
  params: {
    location: location
    tags: tags
    workspaceId: observation.outputs.workspaceId
  }
}

@description('Resource group of everything.')
output AZURE_RESOURCE_GROUP string = group.name

@description('Tenant that signs in.')
output AZURE_TENANT_ID string = tenant().tenantId

@description('Name of the function app.')
output FUNCTION_APP_NAME string = functions.outputs.name

@description('Where Twilio and the vendors reach the application.')
output PUBLIC_BASE_URL string = functions.outputs.baseUrl

@description('Host name that Azure gives the function app; sign-in returns to it.')
output FUNCTION_APP_HOST string = functions.outputs.host

@description('Name of the vault that the hooks fill.')
output KEY_VAULT_NAME string = vault.outputs.name

@description('Address of the vault.')
output KEY_VAULT_URI string = vault.outputs.uri

@description('Name of the database server.')
output DATABASE_SERVER_NAME string = database.outputs.name

@description('Host of the database server.')
output DATABASE_HOST string = database.outputs.host

@description('Name of the database.')
output DATABASE_NAME string = database.outputs.databaseName

@description('Connections that the application may come to hold: three function groups, each with at most so many instances of one process.')
output DATABASE_CONNECTIONS_AT_MOST int = (3 * maximumInstances + httpAlwaysReady) * (databasePoolMax + 1)

@description('Name of the identity of the application, and of its database role.')
output APP_IDENTITY_NAME string = identity.outputs.name

@description('Object id of that identity.')
output APP_IDENTITY_PRINCIPAL_ID string = identity.outputs.principalId

@description('Client id of that identity.')
output APP_IDENTITY_CLIENT_ID string = identity.outputs.clientId

@description('Address of the model account.')
output AZURE_OPENAI_ENDPOINT string = model.outputs.endpoint

@description('Name of the model account.')
output AZURE_OPENAI_ACCOUNT_NAME string = model.outputs.name

@description('Deployment that writes answers.')
output AZURE_OPENAI_CHAT_DEPLOYMENT string = model.outputs.chatDeployment

@description('Deployment that embeds texts.')
output AZURE_OPENAI_EMBEDDING_DEPLOYMENT string = model.outputs.embeddingDeployment

@description('Storage account of the host and the wake queue.')
output STORAGE_ACCOUNT_NAME string = storage.outputs.name
