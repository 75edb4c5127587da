"""What people look at: pages, previews, plates. Not exact values."""
