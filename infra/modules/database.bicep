// PostgreSQL 17, signed in to by Entra ID only.
//
// Connection budget (shared/db/budget.py). A process holds its pool and one connection more, over which leases are renewed. On Flex
// Consumption the functions form three groups, each with instances of its own, one process an instance: http (webhooks and console), poll (the
// timer; one instance works, but a second may be there while it moves) and wake (the queue). So at most
//     groups × maximumInstances × (databasePoolMax + 1) = 3 × 2 × (4 + 1) = 30 connections
// by default, and httpAlwaysReady × (databasePoolMax + 1) more. The smallest size, Standard_B1ms, allows 50, of which the service keeps 15:
// 35 for users. That leaves 5 for a migration, `antwoord doctor` and a person. Standard_B2s has 414 for users: 3 × 27 × 5 = 405.
// While a deployment replaces instances, old and new ones overlap for a moment; who then gets no connection answers 503 or tries again.

@description('Name of the server.')
@minLength(3)
@maxLength(63)
param name string

@description('Region.')
param location string

@description('Tags of every resource.')
param tags object

@description('Size of the server.')
param sku string

@description('Tier of the size.')
param tier string

@description('Storage, in GiB.')
param storageGb int

@description('Mode of the standby.')
param highAvailability string

@description('Days of backups.')
param backupDays int

@description('Whether backups are also kept in the paired region.')
param geoBackup string

@description('Object id of the administrator.')
param administratorObjectId string

@description('Name of the administrator: the login.')
param administratorName string

@description('What the administrator is.')
param administratorType string

@description('Whether the server lies in a private network.')
param privateNetwork bool

@description('Subnet of the server in a private network.')
param subnetId string

@description('DNS zone of the server in a private network.')
param dnsZoneId string

@description('Public IPv4 address that is let in; empty for none.')
param deployerAddress string

resource server 'Microsoft.DBforPostgreSQL/flexibleServers@2024-08-01' = {
  name: name
  location: location
  tags: tags
  sku: {
    name: sku
    tier: tier
  }
  properties: {
    version: '17'
    createMode: 'Default'
    authConfig: {
      activeDirectoryAuth: 'Enabled'
      passwordAuth: 'Disabled'
      tenantId: tenant().tenantId
    }
    storage: {
      storageSizeGB: storageGb
      autoGrow: 'Enabled'
    }
    backup: {
      backupRetentionDays: backupDays
      geoRedundantBackup: geoBackup
    }
    highAvailability: {
      mode: highAvailability
    }
    network: privateNetwork ? {
      delegatedSubnetResourceId: subnetId
      privateDnsZoneArmResourceId: dnsZoneId
    } : {
      publicNetworkAccess: 'Enabled'
    }
  }
}

// The service refuses changes side by side: from here on each waits for the one before it.
resource administrator 'Microsoft.DBforPostgreSQL/flexibleServers/administrators@2024-08-01' = {
  parent: server
  name: administratorObjectId
  properties: {
    principalName: administratorName
    principalType: administratorType
    tenantId: tenant().tenantId
  }
}

// What may be created; the hook creates them. btree_gin is used by the search's index.
resource extensions 'Microsoft.DBforPostgreSQL/flexibleServers/configurations@2024-08-01' = {
  parent: server
  name: 'azure.extensions'
  properties: {
    value: 'VECTOR,PG_TRGM,UNACCENT,BTREE_GIN'
    source: 'user-override'
  }
  dependsOn: [
    administrator
  ]
}

resource database 'Microsoft.DBforPostgreSQL/flexibleServers/databases@2024-08-01' = {
  parent: server
  name: 'antwoord'
  properties: {
    charset: 'UTF8'
    collation: 'en_US.utf8'
  }
  dependsOn: [
    extensions
  ]
}

// 0.0.0.0 stands for all of Azure: Flex Consumption has no fixed addresses of its own. Entra ID still guards the door; privateNetwork shuts it.
resource fromAzure 'Microsoft.DBforPostgreSQL/flexibleServers/firewallRules@2024-08-01' = if (!privateNetwork) {
  parent: server
  name: 'from-azure'
  properties: {
    startIpAddress: '0.0.0.0'
    endIpAddress: '0.0.0.0'
  }
  dependsOn: [
    database
  ]
}

resource fromDeployer 'Microsoft.DBforPostgreSQL/flexibleServers/firewallRules@2024-08-01' = if (!privateNetwork && !empty(deployerAddress)) {
  parent: server
  name: 'from-deployer'
  properties: {
    startIpAddress: deployerAddress
    endIpAddress: deployerAddress
  }
  dependsOn: [
    fromAzure
  ]
}

@description('Resource id of the server.')
output id string = server.id

@description('Name of the server.')
output name string = server.name

@description('Host of the server.')
output host string = server.properties.fullyQualifiedDomainName

@description('Name of the database.')
output databaseName string = database.name
