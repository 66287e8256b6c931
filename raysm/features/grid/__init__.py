"""Many jobs: an array of tasks over regions, each of them one row of the user's, done once."""
