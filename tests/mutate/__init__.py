"""Break a module on purpose, one small change at a time, and see whether a test notices."""
