"""The gateway's page of `up`: a stand-in AI vendor sends, a receiver with faults receives, and one watches what is between."""
