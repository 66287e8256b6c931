"""What tests share: fakes, faults and whole jobs."""
