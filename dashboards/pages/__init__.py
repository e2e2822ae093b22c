"""The report and the other pages: HTML files that open anywhere, offline."""
