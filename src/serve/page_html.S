/* page_html.S — the dashboard, as it is, inside the binary. page.c hands it out. */
    .section .rodata
    .global page_html_begin, page_html_end
page_html_begin:
    .incbin "assets/page.html"
page_html_end:
    .section .note.GNU-stack, "", @progbits
