"""The catalog in a browser and as an API: pages that work without JavaScript, and their JSON twins."""
