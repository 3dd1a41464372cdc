// The application's own identity. User-assigned, so that its roles and its database role exist before the application does.

@description('Name of the identity; the database role is called the same.')
param name string

@description('Region.')
param location string

@description('Tags of every resource.')
param tags object

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: name
  location: location
  tags: tags
}

@description('Name of the identity.')
output name string = identity.name

@description('Object id.')
output principalId string = identity.properties.principalId

@description('Client id.')
output clientId string = identity.properties.clientId
