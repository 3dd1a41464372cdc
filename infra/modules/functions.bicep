// The function app: Flex Consumption, Python 3.13, everything by its own identity.

@description('What makes names unique.')
param suffix string

@description('Region.')
param location string

@description('Tags of every resource.')
param tags object

@description('Name of the identity of the application.')
param identityName string

@description('Name of the storage account.')
param storageName string

@description('Container of the deployed package.')
param deploymentContainer string

@description('Name of the Application Insights component.')
param insightsName string

@description('Address of the vault, with a slash at the end.')
param vaultUri string

@description('Host of the database server.')
param databaseHost string

@description('Name of the database.')
param databaseName string

@description('How the certificate of the database is checked.')
param databaseTls string

@description('Address of the model account.')
param modelEndpoint string

@description('Deployment that writes answers.')
param chatDeployment string

@description('Deployment that embeds texts.')
param embeddingDeployment string

@description('How long the model may reason.')
param chatReasoningEffort string

@description('Tokens that an answer may take at most.')
param chatAnswerLimit int

@description('Subnet of the functions; empty without a private network.')
param subnetId string

@description('Memory of one instance, in MB.')
param instanceMemoryMb int

@description('Most instances of each function group.')
param maximumInstances int

@description('Requests that one instance takes at once.')
param httpConcurrency int

@description('Instances for webhooks that are always ready.')
param httpAlwaysReady int

@description('Jobs that run at once in one process.')
param jobConcurrency int

@description('Connections of one process.')
param databasePoolMax int

@description('Six fields of the timer; empty for every five seconds.')
param pollSchedule string

@description('SID of the Twilio account.')
param twilioAccountSid string

@description('Number that answers.')
param twilioWhatsappFrom string

@description('SID of the template for late answers; empty for none.')
param twilioTemplateSid string

@description('Whether the vault holds the secondary Twilio token.')
param twilioRotating bool

@description('Whether the vault holds the key of HMAC-SHA256 signatures.')
param twilioSharedKeyUsed bool

@description('Whether the vault holds the token of /api/metrics.')
param metricsOn bool

@description('Client id of the app registration; empty leaves the console off.')
param consoleClientId string

@description('App role of an administrator.')
param consoleRole string

@description('Own address; empty for the address that Azure gives.')
param publicBaseUrl string

@description('Internal hosts that deliveries and imports may reach.')
param outboundAllowHosts string

@description('What numbers that are not in people get.')
param unknownSenders string

@description('Language when nothing tells it.')
param defaultLanguage string

var vaultSecrets = '${vaultUri}secrets'

// Names are those of shared/settings.py; tests/unit/test_infra_settings.py compares. An empty value means "not set" there.
// The references are followed by the platform, with the identity below; a value appears once the hook has put it into the vault.
var always = {
  DATABASE_URL: 'postgresql://${identityName}@${databaseHost}:5432/${databaseName}?sslmode=${databaseTls}'
  DATABASE_AUTH: 'entra'
  DB_POOL_MAX: string(databasePoolMax)
  JOB_CONCURRENCY: string(jobConcurrency)
  POLL_SCHEDULE: empty(pollSchedule) ? '*/5 * * * * *' : pollSchedule
  AZURE_OPENAI_ENDPOINT: modelEndpoint
  AZURE_OPENAI_CHAT_DEPLOYMENT: chatDeployment
  AZURE_OPENAI_EMBEDDING_DEPLOYMENT: embeddingDeployment
  AZURE_OPENAI_REASONING_EFFORT: chatReasoningEffort
  AZURE_OPENAI_ANSWER_LIMIT: string(chatAnswerLimit)
  TWILIO_ACCOUNT_SID: twilioAccountSid
  TWILIO_AUTH_TOKEN: '@Microsoft.KeyVault(SecretUri=${vaultSecrets}/twilio-auth-token)'
  TWILIO_WHATSAPP_FROM: twilioWhatsappFrom
  TWILIO_TEMPLATE_SID: twilioTemplateSid
  PUBLIC_BASE_URL: baseUrl
  UNKNOWN_SENDERS: unknownSenders
  DEFAULT_LANGUAGE: defaultLanguage
  OPS_AUTH: empty(consoleClientId) ? 'off' : 'entra'
  OPS_TENANT_ID: tenant().tenantId
  OPS_ROLE: consoleRole
  SECRETS_KEY: '@Microsoft.KeyVault(SecretUri=${vaultSecrets}/secrets-key)'
  OUTBOUND_ALLOW_HOSTS: outboundAllowHosts
  // The host's own storage and the wake queue: by identity, no keys.
  AzureWebJobsStorage__credential: 'managedidentity'
  AzureWebJobsStorage__clientId: identity.properties.clientId
  AzureWebJobsStorage__accountName: storage.name
  AzureWebJobsStorage__blobServiceUri: storage.properties.primaryEndpoints.blob
  AzureWebJobsStorage__queueServiceUri: storage.properties.primaryEndpoints.queue
  // Which identity the SDKs take: there may be more than one.
  AZURE_CLIENT_ID: identity.properties.clientId
  // At least maxConcurrentRequests + batchSize + newBatchThreshold + 2 of host.json.
  PYTHON_THREADPOOL_THREAD_COUNT: '40'
  APPLICATIONINSIGHTS_CONNECTION_STRING: insights.properties.ConnectionString
  APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${identity.properties.clientId};Authorization=AAD'
  // The alerts are made of log lines, so none may be left out: the host would keep five invocations a second, and the lines of those alone.
  OTEL_TRACES_SAMPLER: 'microsoft.fixed_percentage'
  OTEL_TRACES_SAMPLER_ARG: '1'
  AzureMonitorExporter__EnableTraceBasedLogsSampler: 'false'
}
// A reference to what is not in the vault would reach the application as the text of the reference: so only when it is there.
var secondaryToken = twilioRotating ? {
  TWILIO_AUTH_TOKEN_SECONDARY: '@Microsoft.KeyVault(SecretUri=${vaultSecrets}/twilio-auth-token-secondary)'
} : {}
var sharedKey = twilioSharedKeyUsed ? {
  TWILIO_WEBHOOK_SHARED_KEY: '@Microsoft.KeyVault(SecretUri=${vaultSecrets}/twilio-webhook-shared-key)'
} : {}
var metrics = metricsOn ? {
  METRICS_TOKEN: '@Microsoft.KeyVault(SecretUri=${vaultSecrets}/metrics-token)'
} : {}
// On purpose left to their defaults (the test reads this list):
//   default: EMBEDDING_DIMENSIONS JOB_LEASE_SECONDS JOB_MAX_SECONDS DRAIN_SECONDS SLOW_JOB_THRESHOLD_MS
//   default: SETTLE_SECONDS RECONCILE_WINDOW_SECONDS AMBIGUOUS_SEND SWEEP_MINUTES SWEEP_HOURS JOB_RETENTION_DAYS
//   default: SENDER_DAILY_LIMIT AI_NOTICE TYPING_INDICATOR RETRIEVAL_FLOOR
// On purpose never set here: a key of the model or of storage would go around the identity, and the other replaces Twilio.
//   never: AZURE_OPENAI_API_KEY AzureWebJobsStorage TWILIO_API_BASE_URL

var host = site.properties.defaultHostName
var baseUrl = empty(publicBaseUrl) ? 'https://${host}' : publicBaseUrl

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' existing = {
  name: identityName
}

resource storage 'Microsoft.Storage/storageAccounts@2024-01-01' existing = {
  name: storageName
}

resource insights 'Microsoft.Insights/components@2020-02-02' existing = {
  name: insightsName
}

resource plan 'Microsoft.Web/serverfarms@2024-11-01' = {
  // checkov:skip=CKV_AZURE_225:a zone that is lost costs a minute, no message: work is in the database, and Twilio tries again
  name: 'plan-antwoord-${suffix}'
  location: location
  tags: tags
  kind: 'functionapp'
  sku: {
    name: 'FC1'
    tier: 'FlexConsumption'
  }
  properties: {
    reserved: true
  }
}

resource site 'Microsoft.Web/sites@2024-11-01' = {
  // checkov:skip=CKV_AZURE_222:Twilio and the vendors have to reach it
  // checkov:skip=CKV_AZURE_17:Twilio and the vendors have no certificate; their signatures are checked
  // checkov:skip=CKV_AZURE_212:it scales with its work, to nothing if it has none
  // checkov:skip=CKV_AZURE_213:Flex Consumption replaces instances by itself; a web test looks at /api/health
  name: 'func-antwoord-${suffix}'
  location: location
  tags: union(tags, {
    'azd-service-name': 'app'
  })
  kind: 'functionapp,linux'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identity.id}': {}
    }
  }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    clientAffinityEnabled: false
    publicNetworkAccess: 'Enabled'
    keyVaultReferenceIdentity: identity.id
    virtualNetworkSubnetId: empty(subnetId) ? null : subnetId
    siteConfig: {
      minTlsVersion: '1.2'
      scmMinTlsVersion: '1.2'
      ftpsState: 'Disabled'
      http20Enabled: true
    }
    functionAppConfig: {
      deployment: {
        storage: {
          type: 'blobContainer'
          value: '${storage.properties.primaryEndpoints.blob}${deploymentContainer}'
          authentication: {
            type: 'UserAssignedIdentity'
            userAssignedIdentityResourceId: identity.id
          }
        }
      }
      runtime: {
        name: 'python'
        version: '3.13'
      }
      scaleAndConcurrency: {
        instanceMemoryMB: instanceMemoryMb
        maximumInstanceCount: maximumInstances
        alwaysReady: httpAlwaysReady == 0 ? [] : [
          {
            name: 'http'
            instanceCount: httpAlwaysReady
          }
        ]
        triggers: {
          http: {
            perInstanceConcurrency: httpConcurrency
          }
        }
      }
    }
  }
}

resource ftp 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2024-11-01' = {
  parent: site
  name: 'ftp'
  properties: {
    allow: false
  }
}

resource scm 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2024-11-01' = {
  parent: site
  name: 'scm'
  properties: {
    allow: false
  }
}

resource settings 'Microsoft.Web/sites/config@2024-11-01' = {
  // checkov:skip=CKV_AZURE_13:this is not the configuration that the check means: it takes every sites/config for the one called web
  // checkov:skip=CKV_AZURE_63:as before
  // checkov:skip=CKV_AZURE_65:as before
  // checkov:skip=CKV_AZURE_66:as before
  // checkov:skip=CKV_AZURE_80:as before
  // checkov:skip=CKV_AZURE_88:as before
  // checkov:skip=CKV_AZURE_222:as before
  parent: site
  name: 'appsettings'
  properties: union(always, secondaryToken, sharedKey, metrics)
}

// Always on, for then the platform strips identity headers that callers forge, on every path: so no excluded paths. Nobody is turned away
// here: Twilio and the vendors have no account, and are checked by their signatures; the console demands the principal itself.
// Without a client secret the platform signs in by the ID token, which the app registration must allow.
resource signIn 'Microsoft.Web/sites/config@2024-11-01' = {
  // checkov:skip=CKV_AZURE_13:this is not the configuration that the check means: it takes every sites/config for the one called web
  // checkov:skip=CKV_AZURE_63:as before
  // checkov:skip=CKV_AZURE_65:as before
  // checkov:skip=CKV_AZURE_66:as before
  // checkov:skip=CKV_AZURE_80:as before
  // checkov:skip=CKV_AZURE_88:as before
  // checkov:skip=CKV_AZURE_222:as before
  parent: site
  name: 'authsettingsV2'
  properties: {
    platform: {
      enabled: true
      runtimeVersion: '~1'
    }
    globalValidation: {
      requireAuthentication: false
      unauthenticatedClientAction: 'AllowAnonymous'
    }
    identityProviders: empty(consoleClientId) ? {} : {
      azureActiveDirectory: {
        enabled: true
        registration: {
          clientId: consoleClientId
          openIdIssuer: '${environment().authentication.loginEndpoint}${tenant().tenantId}/v2.0'
        }
        validation: {
          allowedAudiences: [
            consoleClientId
          ]
        }
      }
    }
    login: {
      tokenStore: {
        enabled: false
      }
    }
    httpSettings: {
      requireHttps: true
      forwardProxy: {
        convention: 'NoProxy'
      }
    }
  }
  dependsOn: [
    settings
  ]
}

@description('Name of the function app.')
output name string = site.name

@description('Host name that Azure gives.')
output host string = host

@description('Where Twilio and the vendors reach the application.')
output baseUrl string = baseUrl
