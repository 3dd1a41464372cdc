// The alerts. What they mean and what to do: docs/operations.md. The queries read the JSON lines that shared/telemetry.py writes;
// `gauges` is one line a minute, over all instances.

@description('What makes names unique.')
param suffix string

@description('Region.')
param location string

@description('Tags of every resource.')
param tags object

@description('Workspace of the logs.')
param workspaceId string

@description('Name of the Application Insights component.')
param insightsName string

@description('Who is told.')
param actionGroupId string

@description('Resource id of the database server.')
param databaseId string

@description('max_connections of the database server.')
param databaseMaxConnections int

@description('Address of the health check.')
param healthUrl string

// A threshold of a rule is a whole number: so a share is compared inside its query, and the rule counts what failed.
var rules = [
  {
    name: 'dead-letters'
    display: 'Antwoord: dead letters'
    description: 'Jobs have failed for good and nobody has restarted or closed them. ./antwoord dlq list'
    severity: 2
    query: '''
AppTraces
| where Message startswith '{"event": "gauges"'
| extend gauge = parse_json(Message)
| project TimeGenerated, figure = toint(gauge.dead_letters)
| where isnotnull(figure)
'''
    operator: 'GreaterThan'
    threshold: 0
    aggregation: 'Maximum'
    window: 'PT5M'
  }
  {
    name: 'oldest-due'
    display: 'Antwoord: a job has waited for more than two minutes'
    description: 'The workers do not keep up, or do not run. ./antwoord stats'
    severity: 2
    query: '''
AppTraces
| where Message startswith '{"event": "gauges"'
| extend gauge = parse_json(Message)
| project TimeGenerated, figure = toint(gauge.oldest_due_seconds)
| where isnotnull(figure)
'''
    operator: 'GreaterThan'
    threshold: 120
    aggregation: 'Maximum'
    window: 'PT5M'
  }
  {
    name: 'first-attempt'
    display: 'Antwoord: fewer than 99.5 % succeed at the first attempt'
    description: 'Something outside is failing, and retries hide it for now. ./antwoord stats'
    severity: 3
    query: '''
AppTraces
| where Message startswith '{"event": "gauges"'
| extend gauge = parse_json(Message)
| extend share = todouble(gauge.first_attempt_success)
| where isnotnull(share)
| project TimeGenerated, figure = iff(share < 0.995, 1, 0)
'''
    operator: 'GreaterThan'
    threshold: 0
    aggregation: 'Minimum'
    window: 'PT5M'
  }
  {
    name: 'timer-silent'
    display: 'Antwoord: the timer has been silent for five minutes'
    description: 'No line of figures has come: the timer does not run, or the database is away. See /api/health and the function app.'
    severity: 1
    query: '''
AppTraces
| where Message startswith '{"event": "gauges"'
| summarize figure = count()
'''
    operator: 'LessThan'
    threshold: 1
    aggregation: 'Total'
    window: 'PT5M'
  }
  {
    name: 'errors'
    display: 'Antwoord: an error that somebody has to look at'
    description: 'A line at level error that is not a dead letter: a refused key, a message that was not stored. docs/operations.md, Logs.'
    severity: 2
    query: '''
AppTraces
| where SeverityLevel >= 3 and Message startswith '{"event": "'
| where Message !startswith '{"event": "job_failed"'
| summarize figure = count()
'''
    operator: 'GreaterThan'
    threshold: 0
    aggregation: 'Total'
    window: 'PT5M'
  }
  {
    name: 'endpoint-gone'
    display: 'Antwoord: an endpoint said that it is gone'
    description: 'It answered 410 and was disabled; what is for it dies. ./antwoord endpoints list'
    severity: 2
    query: '''
AppTraces
| where Message startswith '{"event": "endpoint_disabled"'
| extend line = parse_json(Message)
| where tostring(line.reason) == 'gone'
| summarize figure = count()
'''
    operator: 'GreaterThan'
    threshold: 0
    aggregation: 'Total'
    window: 'PT5M'
  }
  {
    name: 'breaker-open'
    display: 'Antwoord: an endpoint has not accepted anything for a quarter of an hour'
    description: 'In each minute of it the breaker of some endpoint was open; its deliveries wait. ./antwoord endpoints list'
    severity: 3
    query: '''
AppTraces
| where Message startswith '{"event": "gauges"'
| extend gauge = parse_json(Message)
| project TimeGenerated, figure = toint(gauge.breakers_open)
| where isnotnull(figure)
'''
    operator: 'GreaterThan'
    threshold: 0
    aggregation: 'Minimum'
    window: 'PT15M'
  }
]

resource insights 'Microsoft.Insights/components@2020-02-02' existing = {
  name: insightsName
}

resource logAlerts 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = [
  for rule in rules: {
    name: 'alert-${rule.name}-${suffix}'
    location: location
    tags: tags
    kind: 'LogAlert'
    properties: {
      displayName: rule.display
      description: rule.description
      severity: rule.severity
      enabled: true
      scopes: [
        workspaceId
      ]
      evaluationFrequency: 'PT5M'
      windowSize: rule.window
      // At the first deployment the table is not there yet.
      skipQueryValidation: true
      autoMitigate: true
      criteria: {
        allOf: [
          {
            query: rule.query
            metricMeasureColumn: 'figure'
            timeAggregation: rule.aggregation
            operator: rule.operator
            threshold: rule.threshold
            failingPeriods: {
              numberOfEvaluationPeriods: 1
              minFailingPeriodsToAlert: 1
            }
          }
        ]
      }
      actions: {
        actionGroups: [
          actionGroupId
        ]
      }
    }
  }
]

resource health 'Microsoft.Insights/webtests@2022-06-15' = {
  name: 'health-antwoord-${suffix}'
  location: location
  tags: union(tags, {
    'hidden-link:${insights.id}': 'Resource'
  })
  kind: 'standard'
  properties: {
    SyntheticMonitorId: 'health-antwoord-${suffix}'
    Name: 'Antwoord: health'
    Description: 'GET /api/health must answer 200.'
    Enabled: true
    Frequency: 600
    Timeout: 30
    Kind: 'standard'
    RetryEnabled: true
    Locations: [
      {
        Id: 'emea-nl-ams-azr'
      }
      {
        Id: 'emea-gb-db3-azr'
      }
      {
        Id: 'emea-fr-pra-edge'
      }
    ]
    Request: {
      RequestUrl: healthUrl
      HttpVerb: 'GET'
      ParseDependentRequests: false
    }
    ValidationRules: {
      ExpectedHttpStatusCode: 200
      SSLCheck: true
      SSLCertRemainingLifetimeCheck: 7
    }
  }
}

resource healthAlert 'Microsoft.Insights/metricAlerts@2018-03-01' = {
  name: 'alert-health-${suffix}'
  location: 'global'
  tags: union(tags, {
    'hidden-link:${insights.id}': 'Resource'
    'hidden-link:${health.id}': 'Resource'
  })
  properties: {
    description: 'Two of three places cannot get 200 from /api/health: the application is down, or its database is.'
    severity: 1
    enabled: true
    scopes: [
      health.id
      insights.id
    ]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    autoMitigate: true
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.WebtestLocationAvailabilityCriteria'
      webTestId: health.id
      componentId: insights.id
      failedLocationCount: 2
    }
    actions: [
      {
        actionGroupId: actionGroupId
      }
    ]
  }
}

resource connectionsAlert 'Microsoft.Insights/metricAlerts@2018-03-01' = {
  name: 'alert-connections-${suffix}'
  location: 'global'
  tags: tags
  properties: {
    description: 'Four fifths of the connections of the database are in use: fewer instances, a smaller pool, or a larger size.'
    severity: 2
    enabled: true
    scopes: [
      databaseId
    ]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT5M'
    autoMitigate: true
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          name: 'connections'
          criterionType: 'StaticThresholdCriterion'
          metricNamespace: 'Microsoft.DBforPostgreSQL/flexibleServers'
          metricName: 'active_connections'
          timeAggregation: 'Maximum'
          operator: 'GreaterThan'
          threshold: databaseMaxConnections * 4 / 5
        }
      ]
    }
    actions: [
      {
        actionGroupId: actionGroupId
      }
    ]
  }
}

resource storageAlert 'Microsoft.Insights/metricAlerts@2018-03-01' = {
  name: 'alert-storage-${suffix}'
  location: 'global'
  tags: tags
  properties: {
    description: 'Four fifths of the storage of the database are full. It grows by itself, and never shrinks again.'
    severity: 2
    enabled: true
    scopes: [
      databaseId
    ]
    evaluationFrequency: 'PT15M'
    windowSize: 'PT15M'
    autoMitigate: true
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          name: 'storage'
          criterionType: 'StaticThresholdCriterion'
          metricNamespace: 'Microsoft.DBforPostgreSQL/flexibleServers'
          metricName: 'storage_percent'
          timeAggregation: 'Average'
          operator: 'GreaterThan'
          threshold: 80
        }
      ]
    }
    actions: [
      {
        actionGroupId: actionGroupId
      }
    ]
  }
}
