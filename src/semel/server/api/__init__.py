"""The admin API: endpoints, what they take and give, and who may call them."""
