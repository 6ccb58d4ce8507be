"""The wires: one file each, all over one way of making a request (`_http`); the offline and the scripted model beside them."""
