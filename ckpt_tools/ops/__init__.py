"""One module for each verb: values in, values out, nothing printed."""
