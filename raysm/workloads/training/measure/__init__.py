"""Where the time of a training goes, and how busy its instances are."""
