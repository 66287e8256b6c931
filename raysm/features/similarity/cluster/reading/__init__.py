"""Files into rows: arrays, tables, archives and CSR matrices become one ``Matrix``."""
