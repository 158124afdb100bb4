"""Tasks of Celery: what keeps their messages, how they are sent again, and what a configuration does to them."""
