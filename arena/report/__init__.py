"""One HTML page of a run folder: `arena report`.

    read_run     the files of the folder, checked                      -> RunFiles
    sections     what each part of the page says, as plain numbers     -> PageData
    charts       the same numbers as figures for Plotly
    page         data, figures and templates                           -> HTML
    live         the page over HTTP, made again while a run goes on

Nothing here writes into the journals of a run; the page can be made while the run is under way.
"""
