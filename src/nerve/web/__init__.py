"""The web page: runs, gates and costs in a browser, as HTML from the server."""
