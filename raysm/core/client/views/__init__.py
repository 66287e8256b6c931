"""What users see of jobs: curves, cards that are redrawn, charts, and pages at an address of this machine."""
