"""Published data sets, one file for each kind; `clipless.datasets.catalog` lists their names."""
