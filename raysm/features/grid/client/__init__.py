"""The public API of grids: ``raysm.Grid`` and the handle of a grid."""
