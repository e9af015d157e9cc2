"""``EndpointPickerConfig``: from text (``load``) to a plan of instantiated plugins (``build``)."""
