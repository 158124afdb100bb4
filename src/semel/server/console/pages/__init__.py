"""What is on each page: handlers that read what a page shows, and the one that acts."""
