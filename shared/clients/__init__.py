"""What the application calls over the network: the model, Twilio, the wake queue. Each loads its SDK where first used."""
