"""One job at several numbers of instances, and how much faster more of them are."""
