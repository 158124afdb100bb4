"""Items of batches inside other engines: single items anywhere, and chunks of items as tasks of Celery."""
