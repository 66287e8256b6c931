"""What people look at: plots, tables and cards of jobs, and loops over their events; never the reverse."""
