"""Reports that CI systems take, each made from the outcomes of one verification: text in, nothing printed."""
