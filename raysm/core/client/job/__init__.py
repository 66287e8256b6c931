"""Jobs: their handle, records, listing and removal."""
