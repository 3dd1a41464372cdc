"""The webhook gateway: what comes in from AI vendors is taken once, kept, and delivered until it arrives."""
