"""Live items: a durable record, an index beside it, and the life of an item from novel to observed."""
