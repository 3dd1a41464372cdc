// The private network, if wanted: a subnet for the database, one for the functions, and the zone in which they find it.

@description('Whether there is one at all.')
param wanted bool

@description('Name of the network.')
param name string

@description('Region.')
param location string

@description('Tags of every resource.')
param tags object

var databaseSubnet = 'database'
var functionSubnet = 'functions'
var zoneName = 'antwoord.private.postgres.database.azure.com'

resource databaseGuard 'Microsoft.Network/networkSecurityGroups@2024-05-01' = if (wanted) {
  name: 'nsg-${name}-database'
  location: location
  tags: tags
  properties: {
    securityRules: [
      {
        name: 'postgres-from-the-network'
        properties: {
          direction: 'Inbound'
          access: 'Allow'
          priority: 100
          protocol: 'Tcp'
          sourceAddressPrefix: 'VirtualNetwork'
          sourcePortRange: '*'
          destinationAddressPrefix: 'VirtualNetwork'
          destinationPortRange: '5432'
        }
      }
    ]
  }
}

resource functionGuard 'Microsoft.Network/networkSecurityGroups@2024-05-01' = if (wanted) {
  name: 'nsg-${name}-functions'
  location: location
  tags: tags
  properties: {
    securityRules: []
  }
}

resource network 'Microsoft.Network/virtualNetworks@2024-05-01' = if (wanted) {
  name: name
  location: location
  tags: tags
  properties: {
    addressSpace: {
      addressPrefixes: [
        '10.80.0.0/16'
      ]
    }
    subnets: [
      {
        name: databaseSubnet
        properties: {
          addressPrefix: '10.80.0.0/26'
          networkSecurityGroup: {
            id: databaseGuard.id
          }
          delegations: [
            {
              name: 'postgres'
              properties: {
                serviceName: 'Microsoft.DBforPostgreSQL/flexibleServers'
              }
            }
          ]
        }
      }
      {
        name: functionSubnet
        properties: {
          addressPrefix: '10.80.1.0/24'
          networkSecurityGroup: {
            id: functionGuard.id
          }
          delegations: [
            {
              name: 'functions'
              properties: {
                serviceName: 'Microsoft.App/environments'
              }
            }
          ]
        }
      }
    ]
  }
}

resource zone 'Microsoft.Network/privateDnsZones@2020-06-01' = if (wanted) {
  name: zoneName
  location: 'global'
  tags: tags
}

resource link 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2020-06-01' = if (wanted) {
  parent: zone
  name: 'antwoord'
  location: 'global'
  tags: tags
  properties: {
    registrationEnabled: false
    virtualNetwork: {
      id: network.id
    }
  }
}

@description('Subnet of the database; empty without a network.')
output databaseSubnetId string = wanted ? '${network.id}/subnets/${databaseSubnet}' : ''

@description('Subnet of the functions; empty without a network.')
output functionSubnetId string = wanted ? '${network.id}/subnets/${functionSubnet}' : ''

@description('Zone of the database; empty without a network.')
output databaseDnsZoneId string = wanted ? zone.id : ''
