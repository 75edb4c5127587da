"""Object stores and web servers as stores."""
