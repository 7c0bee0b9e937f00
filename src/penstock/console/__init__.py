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

Why not NiceGUI, which was the first plan. The live page of messages was built both ways and measured once, on two cores
with much other work, with 200 records a second (NiceGUI 3.18, one consumer for all tabs, an AG Grid that gets the new
rows twice a second):

                                     this console              NiceGUI
    bytes until the page has rows    34 kB, 4 requests         725 kB, 21 requests
    the page, a second time          2.4 s                     4.9 to 7.8 s
    CPU, 50 tabs                     2.7 % of a core           1.6 % of a core
    memory for 49 more tabs          1 MB                      40 MB
    memory of the process, 1 tab     258 MB                    88 MB, without Arrow, sampler and history
    bytes a second for a tab         87 kB                     45 kB

So the CPU decides nothing. The rest does: NiceGUI's page is twenty times as large, and takes two to three times as long
once the browser runs; it keeps the state of every tab on the server, so that a restart empties every page; and it
brings 24 packages. What it would give, charts and grids, is a few hundred lines here: tables are HTML, and charts are
SVG that `views.charts` computes. The price is the bytes of a live tab: rows are sent as HTML.

The browser gets one stylesheet and one script, both in this package. It fetches nothing from elsewhere, and the content
security policy forbids it to.
"""
