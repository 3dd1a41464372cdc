// The four figures, drawn from the same lines as the alerts.

@description('Region.')
param location string

@description('Tags of every resource.')
param tags object

@description('Workspace of the logs.')
param workspaceId string

resource workbook 'Microsoft.Insights/workbooks@2022-04-01' = {
  name: guid(resourceGroup().id, 'antwoord-figures')
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'Antwoord: the four figures'
    category: 'workbook'
    sourceId: workspaceId
    serializedData: replace(loadTextContent('workbook.json'), '{workspace}', workspaceId)
  }
}
