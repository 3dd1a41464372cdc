// Where logs go, and who is told.

@description('What makes names unique.')
param suffix string

@description('Region.')
param location string

@description('Tags of every resource.')
param tags object

@description('Address that alerts are sent to.')
param alertEmail string

@description('How many days logs are kept.')
param logRetentionDays int

resource workspace 'Microsoft.OperationalInsights/workspaces@2023-09-01' = {
  name: 'log-antwoord-${suffix}'
  location: location
  tags: tags
  properties: {
    sku: {
      name: 'PerGB2018'
    }
    retentionInDays: logRetentionDays
  }
}

// Local authentication is off: what is logged comes from the application's identity (Monitoring Metrics Publisher).
resource insights 'Microsoft.Insights/components@2020-02-02' = {
  name: 'appi-antwoord-${suffix}'
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: workspace.id
    DisableLocalAuth: true
  }
}

resource actionGroup 'Microsoft.Insights/actionGroups@2023-01-01' = {
  name: 'ag-antwoord-${suffix}'
  location: 'global'
  tags: tags
  properties: {
    groupShortName: 'antwoord'
    enabled: true
    emailReceivers: [
      {
        name: 'on-call'
        emailAddress: alertEmail
        useCommonAlertSchema: true
      }
    ]
  }
}

@description('Resource id of the workspace.')
output workspaceId string = workspace.id

@description('Name of the Application Insights component.')
output insightsName string = insights.name

@description('Resource id of the action group.')
output actionGroupId string = actionGroup.id
