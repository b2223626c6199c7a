"""Who runs the model. Every backend turns a `Request` into the events of `backends.base`."""
