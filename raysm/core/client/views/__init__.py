"""What users see of jobs: curves, live cards, charts, and pages at a local address."""
