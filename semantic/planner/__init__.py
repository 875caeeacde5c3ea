"""In which order to ask expensive predicates of an event, so that as few as possible are asked."""
