"""Attribution methods under one protocol, and the registry that names them."""
