"""The server: the api over HTTP, streams and sockets."""
