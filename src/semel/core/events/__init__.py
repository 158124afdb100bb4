"""What a store may be asked about events: dead letters of consumers, and events that wait to be published."""
