"""The web console: a cluster in a browser.

    console = serve(ConsoleSettings(bootstrap="127.0.0.1:9092"))       # `penstock console`

Four rooms, and what passes between them. `observe` reads a cluster: one sampler for all tabs, and the records of topics
as Arrow batches. `views` is pure: observations go in, the state of a page comes out; every decision about what a page
says is there, and is tested without a browser. `pages` turns that state into HTML. `server` routes requests, keeps
sessions, checks who may change something, and streams.

How a page stays live. A page is a list of parts, and a function of the last sample. When the sampler has a new sample,
the function is called again, once for all tabs that show the same address, and the parts that changed are sent as
server-sent events; the script in `static` puts them in place. So fifty tabs cost the brokers what one costs, the server
keeps no state for a tab, and a page works after a reload because its address is all it depends on.

Why not NiceGUI, which was the first plan. Its wheel has 8.5 MB and unpacks to 52 MB with 24 dependencies, against 0.2
MB for Starlette and uvicorn; it keeps the state of every client on the server, so that a tab costs memory for as long
as it is open and a restart empties every page; and a page of more than about a thousand elements is slow, by its
maintainers' own word, while a page of messages has several thousand. What it would give, charts and grids, is a few
hundred lines here: tables are HTML, and charts are SVG that `views.charts` computes.

The browser gets one stylesheet and one script, both in this package. It fetches nothing from elsewhere, and the content
security policy forbids it to.
"""
